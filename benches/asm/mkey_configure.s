    push rbp
    push r15
    push r14
    push rbx
    sub rsp,0x48
    mov rbx,rdi
    mov r15d,DWORD PTR [rdi+0x58]
    mov ebp,DWORD PTR [rdi+0x5c]
    mov rax,QWORD PTR [rdi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 0
    lea eax,[r15-0x1]
    mov DWORD PTR [rbx+0x60],eax
0:
    add rsi,0x48
    mov QWORD PTR [rsp+0x18],rsi
    mov WORD PTR [rsp+0x44],0x3801
    mov DWORD PTR [rsp],0x0
    mov QWORD PTR [rsp+0x8],rdx
    mov QWORD PTR [rsp+0x10],0x4
    mov BYTE PTR [rsp+0x41],0x2
    mov BYTE PTR [rsp+0x46],0x0
    mov r14d,DWORD PTR [rbx+0x64]
    and r14d,r15d
    shl r14,0x6
    add r14,QWORD PTR [rbx]
    mov rax,QWORD PTR [rbx+0x38]
    mov BYTE PTR [rax+0x2],0x1
    mov r9,rsp
    mov rdi,rbx
    mov esi,r15d
    mov edx,ebp
    mov r8d,0x8
    call QWORD PTR [_ZN8mlx5_wqe4keys9configure59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_mkey]
    mov ecx,edx
    sub ecx,ebp
    cmp ecx,0x1
    jne 1
    mov ecx,eax
    sub ecx,r15d
    cmp ecx,0x1
    jne 2
    cmp DWORD PTR [rbx+0x6c],0x0
    je 3
    mov rcx,QWORD PTR [rbx+0x10]
    mov ecx,DWORD PTR [rcx]
    test cl,0x1
    je 3
    mov DWORD PTR [rbx+0x58],eax
    mov DWORD PTR [rbx+0x5c],edx
    mov rcx,QWORD PTR [rbx+0x38]
    mov WORD PTR [rcx],dx
    mov rcx,QWORD PTR [rbx+0x18]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rcx+0x4],eax
    sfence
    mov rax,QWORD PTR [rbx+0x20]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    jmp 6
1:
    mov rdi,rbx
    mov esi,eax
    mov rcx,r14
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_many]
    jmp 7
2:
    lea esi,[rcx-0x1]
    cmp esi,DWORD PTR [rbx+0x6c]
    jae 3
    mov rsi,QWORD PTR [rbx+0x10]
    mov esi,DWORD PTR [rsi]
    test sil,0x1
    jne 4
3:
    mov rdi,rbx
    mov esi,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 7
4:
    mov DWORD PTR [rbx+0x58],eax
    mov DWORD PTR [rbx+0x5c],edx
    mov rsi,QWORD PTR [rbx+0x38]
    mov WORD PTR [rsi],dx
    mov rdx,QWORD PTR [rbx+0x18]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rdx+0x4],eax
    sfence
    mov rdi,QWORD PTR [rbx+0x20]
    cmp ecx,0x2
    jne 5
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    movaps xmm0,XMMWORD PTR [r14+0x40]
    movaps xmm1,XMMWORD PTR [r14+0x50]
    movaps xmm2,XMMWORD PTR [r14+0x60]
    movaps xmm3,XMMWORD PTR [r14+0x70]
    movaps XMMWORD PTR [rdi+0x40],xmm0
    movaps XMMWORD PTR [rdi+0x50],xmm1
    movaps XMMWORD PTR [rdi+0x60],xmm2
    movaps XMMWORD PTR [rdi+0x70],xmm3
    jmp 6
5:
    mov rsi,r14
    mov edx,ecx
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
6:
    sfence
    mov rax,QWORD PTR [rbx+0x28]
    xor QWORD PTR [rbx+0x20],rax
    xor eax,eax
7:
    add rsp,0x48
    pop rbx
    pop r14
    pop r15
    pop rbp
    ret
    mov r14,rax
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,r14
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
