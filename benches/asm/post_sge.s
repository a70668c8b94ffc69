    push r15
    push r14
    push rbx
    mov r10d,ecx
    mov rbx,rdi
    mov eax,DWORD PTR [rsi+0x58]
    mov ecx,DWORD PTR [rsi+0x5c]
    mov rdi,QWORD PTR [rsi+0x10]
    mov edi,DWORD PTR [rdi]
    test dil,0x1
    jne 0
    lea edi,[rax-0x1]
    mov DWORD PTR [rsi+0x60],edi
0:
    mov r11,QWORD PTR [r8]
    mov r15,QWORD PTR [r8+0x8]
    lea edi,[r15-0x1]
    cmp edi,DWORD PTR [rsi+0x78]
    jae 5
    cmp DWORD PTR [rsi+0x60],eax
    js 5
    mov edi,DWORD PTR [rsi+0x64]
    and edi,eax
    shl rdi,0x6
    add rdi,QWORD PTR [rsi]
    bswap rdx
    bswap r10d
    mov QWORD PTR [rdi+0x10],rdx
    rol r15,0x20
    bswap r15
    bswap r11
    mov QWORD PTR [rdi+0x18],r10
    mov QWORD PTR [rdi+0x20],r15
    mov QWORD PTR [rdi+0x28],r11
    mov edx,DWORD PTR [rsi+0x68]
    movzx r8d,ax
    shl r8,0x28
    or rdx,0x8000000
    movabs r10,0x800000003
    or r10,r8
    lea r8,[r10+rdx*1]
    add r8,0xfffffffffffffffe
    add r10,QWORD PTR [rsi+0x50]
    bswap r10
    mov QWORD PTR [rdi],r10
    mov QWORD PTR [rdi+0x8],rdx
    mov rdx,QWORD PTR [rsi+0x8]
    mov r10d,DWORD PTR [rsi+0x64]
    and r10d,ecx
    shl r10,0x4
    mov QWORD PTR [rdx+r10*1],r9
    mov QWORD PTR [rdx+r10*1+0x8],r8
    lea edx,[rax+0x1]
    inc ecx
    cmp DWORD PTR [rsi+0x6c],0x0
    je 1
    mov rax,QWORD PTR [rsi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 3
1:
    mov rdi,rbx
2:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 4
3:
    mov DWORD PTR [rsi+0x58],edx
    mov DWORD PTR [rsi+0x5c],ecx
    mov rax,QWORD PTR [rsi+0x38]
    mov WORD PTR [rax],cx
    mov rax,QWORD PTR [rsi+0x18]
    movzx ecx,dx
    bswap ecx
    mov DWORD PTR [rax+0x4],ecx
    sfence
    mov rax,QWORD PTR [rsi+0x20]
    movaps xmm0,XMMWORD PTR [rdi]
    movaps xmm1,XMMWORD PTR [rdi+0x10]
    movaps xmm2,XMMWORD PTR [rdi+0x20]
    movaps xmm3,XMMWORD PTR [rdi+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    sfence
    mov rax,QWORD PTR [rsi+0x28]
    xor QWORD PTR [rsi+0x20],rax
    mov BYTE PTR [rbx],0x1e
4:
    mov rax,rbx
    pop rbx
    pop r14
    pop r15
    ret
5:
    mov r14,rsi
    mov rdi,rsi
    mov esi,eax
    mov rax,rdx
    mov edx,ecx
    mov rcx,r9
    mov r8d,0x8
    xor r9d,r9d
    push r15
    push r11
    push r10
    push rax
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov ecx,edx
    mov rdi,rbx
    mov rsi,r14
    mov edx,eax
    jmp 2
    mov rbx,rax
    mov rdi,r14
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
