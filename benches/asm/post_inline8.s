    push r14
    push rbx
    push rax
    mov r11d,edx
    mov r10,rsi
    mov eax,DWORD PTR [rdi+0x58]
    mov edx,DWORD PTR [rdi+0x5c]
    mov rsi,QWORD PTR [rdi+0x10]
    mov esi,DWORD PTR [rsi]
    test sil,0x1
    jne 0
    lea esi,[rax-0x1]
    mov DWORD PTR [rdi+0x60],esi
0:
    lea rsi,[r8-0x1]
    cmp rsi,QWORD PTR [rdi+0x70]
    jae 12
    cmp DWORD PTR [rdi+0x60],eax
    js 12
    mov esi,DWORD PTR [rdi+0x64]
    and esi,eax
    shl rsi,0x6
    add rsi,QWORD PTR [rdi]
    bswap r10
    bswap r11d
    mov QWORD PTR [rsi+0x10],r10
    mov QWORD PTR [rsi+0x18],r11
    mov r10d,r8d
    or r10d,0x80000000
    bswap r10d
    mov DWORD PTR [rsi+0x20],r10d
    cmp r8,0x7
    jbe 2
    mov r10,QWORD PTR [r8+rcx*1-0x8]
    mov QWORD PTR [rsi+r8*1+0x1c],r10
    cmp r8,0x8
    je 4
    mov r10d,0x8
    xor r11d,r11d
1:
    mov rbx,QWORD PTR [rcx+r11*1]
    mov QWORD PTR [rsi+r11*1+0x24],rbx
    mov r11,r10
    add r10,0x8
    cmp r10,r8
    jb 1
    jmp 4
2:
    cmp r8,0x3
    jbe 3
    mov r10d,DWORD PTR [rcx]
    mov DWORD PTR [rsi+0x24],r10d
    mov ecx,DWORD PTR [r8+rcx*1-0x4]
    mov DWORD PTR [rsi+r8*1+0x20],ecx
    jmp 4
3:
    movzx r10d,BYTE PTR [rcx]
    mov BYTE PTR [rsi+0x24],r10b
    mov r10,r8
    shr r10,1
    movzx r11d,BYTE PTR [rcx+r10*1]
    mov BYTE PTR [rsi+r10*1+0x24],r11b
    movzx ecx,BYTE PTR [rcx+r8*1-0x1]
    mov BYTE PTR [rsi+r8*1+0x23],cl
4:
    add r8,0x3
    shr r8,0x4
    lea ecx,[r8+0x6]
    shr ecx,0x2
    movzx r10d,ax
    shl r10,0x28
    movabs r11,0x800000003
    or r11,r10
    add r8,QWORD PTR [rdi+0x50]
    lea r10,[rcx+r11*1]
    add r10,0x7fffffd
    add r8,r11
    bswap r8
    mov QWORD PTR [rsi],r8
    mov QWORD PTR [rsi+0x8],0x8000000
    mov r8,QWORD PTR [rdi+0x8]
    mov r11d,DWORD PTR [rdi+0x64]
    and r11d,edx
    shl r11,0x4
    mov QWORD PTR [r8+r11*1],r9
    mov QWORD PTR [r8+r11*1+0x8],r10
    add eax,ecx
    inc edx
    cmp ecx,0x1
    jne 6
    cmp DWORD PTR [rdi+0x6c],0x0
    je 5
    mov rcx,QWORD PTR [rdi+0x10]
    mov ecx,DWORD PTR [rcx]
    test cl,0x1
    jne 8
5:
    jmp 7
6:
    lea r8d,[rcx-0x1]
    cmp r8d,DWORD PTR [rdi+0x6c]
    jae 7
    mov r8,QWORD PTR [rdi+0x10]
    mov r8d,DWORD PTR [r8]
    test r8b,0x1
    jne 9
7:
    mov esi,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    add rsp,0x8
    pop rbx
    pop r14
    ret
8:
    mov DWORD PTR [rdi+0x58],eax
    mov DWORD PTR [rdi+0x5c],edx
    mov rcx,QWORD PTR [rdi+0x38]
    mov WORD PTR [rcx],dx
    mov rcx,QWORD PTR [rdi+0x18]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rcx+0x4],eax
    sfence
    mov rax,QWORD PTR [rdi+0x20]
    movaps xmm0,XMMWORD PTR [rsi]
    movaps xmm1,XMMWORD PTR [rsi+0x10]
    movaps xmm2,XMMWORD PTR [rsi+0x20]
    movaps xmm3,XMMWORD PTR [rsi+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    jmp 11
9:
    mov DWORD PTR [rdi+0x58],eax
    mov DWORD PTR [rdi+0x5c],edx
    mov r8,QWORD PTR [rdi+0x38]
    mov WORD PTR [r8],dx
    mov rdx,QWORD PTR [rdi+0x18]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rdx+0x4],eax
    sfence
    mov rax,QWORD PTR [rdi+0x20]
    cmp ecx,0x2
    jne 10
    movaps xmm0,XMMWORD PTR [rsi]
    movaps xmm1,XMMWORD PTR [rsi+0x10]
    movaps xmm2,XMMWORD PTR [rsi+0x20]
    movaps xmm3,XMMWORD PTR [rsi+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    movaps xmm0,XMMWORD PTR [rsi+0x40]
    movaps xmm1,XMMWORD PTR [rsi+0x50]
    movaps xmm2,XMMWORD PTR [rsi+0x60]
    movaps xmm3,XMMWORD PTR [rsi+0x70]
    movaps XMMWORD PTR [rax+0x40],xmm0
    movaps XMMWORD PTR [rax+0x50],xmm1
    movaps XMMWORD PTR [rax+0x60],xmm2
    movaps XMMWORD PTR [rax+0x70],xmm3
    jmp 11
10:
    mov rbx,rdi
    mov rdi,rax
    mov edx,ecx
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
    mov rdi,rbx
11:
    sfence
    mov rax,QWORD PTR [rdi+0x28]
    xor QWORD PTR [rdi+0x20],rax
    xor eax,eax
    add rsp,0x8
    pop rbx
    pop r14
    ret
12:
    mov rbx,rdi
    mov esi,eax
    mov rax,rcx
    mov rcx,r9
    mov r14,r8
    mov r8d,0x8
    xor r9d,r9d
    push r14
    push rax
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov rdi,rbx
    jmp 7
    mov r14,rax
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,r14
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
